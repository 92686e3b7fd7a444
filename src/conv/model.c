/* The model of what a convolution costs: the backend's counts of work times constants
   that calibration measures or the backend knows. */
// SPDX-License-Identifier: Apache-2.0
#include "conv/choose.h"

#include "backend/tuning.h"
#include "base/dtype.h"

conv_model dn_conv_model(const danaus_device *dev, const conv_kernel *k)
{
    conv_model built = { 0 }, m;
    built.count = dev->backend->conv->terms(dev, k, built.term);
    m = built;
    m.measured = 1;
    for (int i = 0; i < m.count; i++) {
        conv_term *t = &m.term[i];
        double value =
            dn_tuning_constant(dev->tuning, dn_sum_type(k->dtype), t->constant, t->of);
        if (!(value > 0))
            return built;
        t->second = dn_conv_is_rate(t) ? 1 / value : value;
    }
    return m;
}

double dn_conv_cost(const conv_model *model, const conv_work *work)
{
    double seconds = 0;
    for (int i = 0; i < model->count; i++)
        seconds += work->amount[i] * model->term[i].second;
    return seconds * work->idle;
}

int64_t dn_conv_few_rows(const danaus_device *dev, const conv_problem *p)
{
    int64_t many = dev->backend->conv->few_rows;
    if (!p->batch || p->batch >= many || p->channels >= many)
        return 0;
    return p->batch * p->channels < many ? p->batch * p->channels : 0;
}
