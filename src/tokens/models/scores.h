/* Scores of Unigram as the reference reads them. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_TOKENS_SCORES_H
#define DN_TOKENS_SCORES_H

/* The reference (serde_json) reads a number's digits as an integer and divides it by a power of
   ten, which may round twice. Ways of equal scores, such as those to a row of one letter, differ
   by such bits, so that they count. Returns what it makes of the shortest digits of `score`. */
double dn_reference_score(double score);

#endif
