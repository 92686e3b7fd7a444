/* For two groups, sorting finds the best exchanges of a class: the members of each group whose
   costs would fall most change places with each other. */
// SPDX-License-Identifier: Apache-2.0
#include "factor/exchange.h"

#include "base/numbers.h"

#include <stdlib.h>

enum { SWEEPS = 50 };

static int compare(int64_t a, int64_t b) { return (a > b) - (a < b); }

static int by_change(const void *left, const void *right)
{
    const ks_trader *a = left, *b = right;
    if (a->class != b->class)
        return compare(a->class, b->class);
    if (a->change != b->change)
        return a->change < b->change ? -1 : 1;
    return compare(a->index, b->index);
}

static int by_group(const void *left, const void *right)
{
    const ks_trader *a = left, *b = right;
    if (a->group != b->group)
        return compare(a->group, b->group);
    if (a->class != b->class)
        return compare(a->class, b->class);
    return compare(a->index, b->index);
}

static int64_t class_of(const ks_members *m, int64_t index)
{
    return m->classes ? m->classes[index] : 0;
}

/* The members of group `from`, sorted by class and by the change of costs by a move to `to`. */
static int64_t gather(
    const ks_members *m, const double *cost, int64_t from, int64_t to, ks_trader *some)
{
    int64_t count = 0;
    for (int64_t i = 0; i < m->n; i++)
        if (m->label[i] == from)
            some[count++] =
                (ks_trader){ from, class_of(m, i), i,
                             cost[i * m->groups + to] - cost[i * m->groups + from] };
    qsort(some, (size_t)count, sizeof *some, by_change);
    return count;
}

static int64_t exchange_two(
    const ks_members *m, const double *cost, int64_t g, int64_t h, double least,
    ks_trader *room)
{
    int64_t ng = gather(m, cost, g, h, room), exchanged = 0;
    ks_trader *other = room + ng;
    int64_t nh = gather(m, cost, h, g, other);
    for (int64_t i = 0, j = 0; i < ng && j < nh;) {
        int64_t class = room[i].class;
        if (class == other[j].class && room[i].change + other[j].change < -least) {
            m->label[room[i++].index] = h;
            m->label[other[j++].index] = g;
            exchanged++;
            continue;
        }
        int64_t last = MIN(class, other[j].class); /* nothing more of this class */
        while (i < ng && room[i].class <= last)
            i++;
        while (j < nh && other[j].class <= last)
            j++;
    }
    return exchanged;
}

int64_t dn_exchange(
    const ks_members *m, const double *cost, double least, ks_trader *room)
{
    int64_t all = 0, some = 1;
    for (int sweep = 0; some && sweep < SWEEPS; sweep++) {
        some = 0;
        for (int64_t g = 0; g < m->groups; g++)
            for (int64_t h = g + 1; h < m->groups; h++)
                some += exchange_two(m, cost, g, h, least, room);
        all += some;
    }
    return all;
}

void dn_exchange_places(
    const ks_members *m, const int64_t *place, ks_trader *room, int64_t *permutation)
{
    ks_trader *members = room + m->n;
    for (int64_t i = 0; i < m->n; i++) {
        room[i] = (ks_trader){ place[i], class_of(m, i), i, 0 };
        members[i] = (ks_trader){ m->label[i], class_of(m, i), i, 0 };
    }
    qsort(room, (size_t)m->n, sizeof *room, by_group);
    qsort(members, (size_t)m->n, sizeof *members, by_group);
    for (int64_t i = 0; i < m->n; i++)
        permutation[room[i].index] = members[i].index;
}
