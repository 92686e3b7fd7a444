#!/usr/bin/env python3
"""Counts the tests of a JUnit file: python3 scripts/junit.py FILE PART

Prints a line "failed PART: NAME" for each test that failed or was skipped without a reason, a line
"skipped PART: NAME: reason" for each other one that was skipped, those that cmocka skips
within a program included, and then "PASSED FAILED SKIPPED". A file that is missing or
holds no test is one failure.
"""
# SPDX-License-Identifier: Apache-2.0
import re
import sys
import xml.etree.ElementTree as xml


def reason_of(case, output):
    """Why it was skipped, "" for a test of CTest that should have run: what a program
    says last before it ends with the status for skipping."""
    message = case.find("skipped").get("message") or ""
    lines = [line for line in output.splitlines() if line.strip()]
    if case.get("status") is None: # pytest
        return message
    return lines[-1] if message.startswith("SKIP_") and lines else ""


def main(path, part):
    try:
        cases = list(xml.parse(path).iter("testcase"))
    except (OSError, xml.ParseError):
        cases = []
    passed = failed = skipped = 0
    for case in cases:
        output = case.findtext("system-out") or ""
        name = case.get("name")
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
            print(f"failed {part}: {name}")
        elif case.find("skipped") is None:
            passed += 1
        elif reason := reason_of(case, output):
            skipped += 1
            print(f"skipped {part}: {name}: {reason}")
        else:
            failed += 1
            print(f"failed {part}: {name}: it was skipped without a reason")
        inside = set(re.findall(r"^\[  SKIPPED \] ([a-z]\w*)", output, re.M))
        for test in sorted(inside):
            skipped += 1
            print(f"skipped {part}: {name}: {test}")
    print(passed, failed if cases else 1, skipped)


if __name__ == "__main__":
    main(*sys.argv[1:])
