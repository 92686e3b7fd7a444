/* Members of groups of fixed sizes trade places. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_FACTOR_EXCHANGE_H
#define DN_FACTOR_EXCHANGE_H

#include "danaus/base.h"

/* n members, each in one of `groups` groups and of one class. */
typedef struct ks_members {
    int64_t n, groups;
    int64_t *label;         /* the group of each */
    const int64_t *classes; /* of each; NULL: all are of one */
} ks_members;

/* A member that may trade places, and how much the sum of costs grows if it leaves; positions
   and members in turn, when they are matched. */
typedef struct ks_trader {
    int64_t group, class, index;
    double change;
} ks_trader;

/* Exchanges pairs of one class, for any two groups those that lower the sum of
   cost[n][label] most, until no pair lowers it by more than `least`. Returns the number of
   exchanges. `room` has n places. */
int64_t dn_exchange(
    const ks_members *m, const double *cost, double least, ks_trader *room);

/* permutation[i] is the member for place i, whose group is place[i]: one of that group and
   of the class of member i, in ascending order of both. `room` has 2 n places. */
void dn_exchange_places(
    const ks_members *m, const int64_t *place, ks_trader *room, int64_t *permutation);

#endif
