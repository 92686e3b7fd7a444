/* Rows of numbers as 8-bit integers and a scale. A number is about its integer times the scale. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_BASE_INT8_H
#define DN_BASE_INT8_H

#include <stdint.h>

#define DN_INT8_MOST 127 /* magnitude of an integer */

/* The scale of numbers up to a magnitude; NaN if that is not finite. It has 17 bits. An integer
   times the scale is then an f32, and is rounded to the same integer and scale again. */
float dn_int8_scale(float magnitude);

/* The integer of a number; 0 if the scale is 0 or NaN. */
int8_t dn_int8_round(float number, float scale);

#endif
