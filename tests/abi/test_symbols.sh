#!/bin/sh
# The shared library exports what tests/abi/symbols.txt lists.
# SPDX-License-Identifier: Apache-2.0
exec sh scripts/check_symbols.sh "$DANAUS_BUILD/libdanaus.so"
