// The headers and the library from C++: version and a status.
// SPDX-License-Identifier: Apache-2.0
#include <danaus/danaus.h>

#include <cstring>

int main()
{
    danaus_pattern p = { 1, 2, 3, 1 };
    danaus_ks_desc desc = {};
    desc.layout = DANAUS_BATCH_LAST;
    danaus_ks_plan *plan = nullptr;
    danaus_status status = danaus_ks_plan_create(nullptr, &p, 1, &desc, &plan);
    return status != DANAUS_ERR_ARGUMENT || plan || !std::strlen(danaus_version());
}
