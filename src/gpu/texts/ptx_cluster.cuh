/* Instructions of compute capability 9.0 and later for clusters of blocks. ptx.cuh includes
   this where CLUSTER is more than one. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

INLINE u32 cluster_rank()
{
    u32 rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

INLINE void cluster_sync()
{
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::
                     : "memory");
}

/* The address in the cluster's block `rank` of what has this address here. */
INLINE u32 in_block(u32 address, u32 rank)
{
    u32 there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}

/* Memory of any block of the cluster, by such addresses. */
INLINE uint4 load_cluster128(u32 from)
{
    uint4 v;
    asm volatile("ld.shared::cluster.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(from)
                 : "memory");
    return v;
}

INLINE void store_cluster32(u32 to, u32 v)
{
    asm volatile("st.shared::cluster.b32 [%0], %1;" ::"r"(to), "r"(v) : "memory");
}

INLINE void store_cluster64(u32 to, u32 v0, u32 v1)
{
    asm volatile("st.shared::cluster.v2.b32 [%0], {%1, %2};" ::"r"(to), "r"(v0), "r"(v1)
                 : "memory");
}
