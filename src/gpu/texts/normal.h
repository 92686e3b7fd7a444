/* L(v) = ln(Phi(v) / (1 - Phi(v))) for the distribution function Phi of the normal distribution;
   v Phi(v) = v / (1 + exp(-L(v))). L is v times a polynomial of v^2 up to 5.5^2, which minimises
   the greatest error of v Phi(v). The relative error is 8.2e-5, a sixth of what rounding to f16
   adds. Where v Phi(v) is among the smallest numbers of f16, the error is less than half of the
   smallest one. This is for results of 16 bits; erf needs twice as many instructions. FN is
   how functions begin. */
// SPDX-License-Identifier: Apache-2.0
FN float normal_logit(float v)
{
    float t = v * v;
    t = t < 30.25f ? t : 30.25f;
    float p = 1.322967606e-9f;
    p = p * t - 1.254291047e-7f;
    p = p * t + 4.622412904e-6f;
    p = p * t - 7.348137738e-5f;
    p = p * t - 2.668429475e-4f;
    p = p * t + 7.314048807e-2f;
    p = p * t + 1.595435328f;
    return v * p;
}
