#!/usr/bin/env python3
"""Puts the licences of the libraries inside a wheel into its licenses/bundled.

    wheel_licences.py WHEEL

auditwheel's list of these libraries names the packages that they came from; Debian keeps a
package's licences in /usr/share/doc, RPM in /usr/share/licenses.
"""
# SPDX-License-Identifier: Apache-2.0
import json
import pathlib
import re
import shutil
import sys

from auditwheel.wheeltools import InWheel

SHARE = pathlib.Path("/usr/share")


def texts_of(package):
    """The files that state a package's licences."""
    debian = SHARE / "doc" / package / "copyright"
    found = [debian] if debian.exists() else sorted((SHARE / "licenses" / package).glob("*"))
    if not found:
        sys.exit(f"{package} states no licence in {debian} or {SHARE / 'licenses' / package}")
    return found


def packages_of(info):
    """The packages of the system that libraries of the wheel came from."""
    listed = json.loads((info / "sboms" / "auditwheel.cdx.json").read_text())
    for part in listed["components"]:
        if re.match(r"pkg:(deb|rpm)/", part["purl"]):
            yield part["name"]


def main(wheel):
    with InWheel(wheel, wheel) as place:
        info = next(pathlib.Path(place).glob("*.dist-info"))
        for package in packages_of(info):
            to = info / "licenses" / "bundled" / package
            to.mkdir(parents=True)
            for text in texts_of(package):
                shutil.copy(text, to)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]).resolve())
