/* Short convolutions on CUDA: members of dn_cuda_conv. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_CUDA_CONV_CONV_SHORT_H
#define DN_CUDA_CONV_CONV_SHORT_H

#include "device/conv.h"

danaus_status dn_cuda_few_taps(danaus_device *dev, const short_operands *operands);
danaus_status dn_cuda_few_taps_gradient(
    danaus_device *dev, const short_gradient_operands *operands);

#endif
