/* Registering the operators of all tables with PyTorch, under the namespace danaus. */
// SPDX-License-Identifier: Apache-2.0
#include "shim.h"

#include <exception>

namespace danaus_torch
{

namespace
{

const Operator *const tables[] = { ks_operators, conv_operators, hyena_operators,
                                   cayley_operators, same_operators };

/* Libraries live as long as the process: freeing one takes its operators away. */
void register_all()
{
    LibraryHandle define, keys[2];
    const char *const names[2] = { "CPU", "CUDA" };
    check(
        shim.aoti_torch_library_init_def("danaus", __FILE__, __LINE__, &define),
        "open the operators' namespace, which something else has taken");
    for (int k = 0; k < 2; k++)
        check(
            shim.aoti_torch_library_init_impl(
                "danaus", names[k], __FILE__, __LINE__, &keys[k]),
            "open the operators' namespace");
    for (const Operator *table : tables)
        for (const Operator *o = table; o->schema; o++) {
            check(shim.aoti_torch_library_def(define, o->schema), o->schema);
            for (LibraryHandle key : keys)
                check(
                    shim.torch_library_impl(key, o->name, o->kernel, torch_version),
                    o->name);
        }
}

} // namespace

} // namespace danaus_torch

/* What danaus/torch/_ops.py calls once, after it has loaded this library. Returns NULL, or
   a sentence on why there are no operators. */
extern "C" DANAUS_API const char *danaus_torch_register(void)
{
    static std::string problem = danaus_torch::load_shim();
    if (problem.empty()) {
        try {
            danaus_torch::register_all();
        } catch (const std::exception &e) {
            problem = e.what();
        }
    }
    return problem.empty() ? nullptr : problem.c_str();
}
