#!/usr/bin/python3
"""Checks what a program printed as JSON:

    facts.py KEY.KEY... CONDITION      reads standard input

CONDITION is Python over `v`, the value of the keys.
"""
# SPDX-License-Identifier: Apache-2.0
import json
import sys

keys, condition = sys.argv[1:]
value = json.load(sys.stdin)
for key in keys.split(".") if keys else []:
    value = value[int(key) if key.isdigit() else key]
if not eval(condition, {}, {"v": value}):
    sys.exit(f"{keys} is {value}")
