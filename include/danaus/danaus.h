/* danaus: structured linear algebra. This header includes all the others. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DANAUS_DANAUS_H
#define DANAUS_DANAUS_H

#include "danaus/base.h"
#include "danaus/device.h"
#include "danaus/ks.h"
#include "danaus/factorize.h"
#include "danaus/algebra.h"
#include "danaus/transforms.h"
#include "danaus/conv.h"
#include "danaus/file.h"
#include "danaus/model.h"
#include "danaus/tokenizer.h"

#endif
