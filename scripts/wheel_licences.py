#!/usr/bin/env python3
"""Puts the licences of the libraries inside a wheel into its licenses/bundled.

    wheel_licences.py WHEEL

auditwheel gives a library a hash in its name: libx-0123abcd.so.1 was libx.so.1. The package that
has a file of that name states its licences, by Debian in /usr/share/doc, by RPM in
/usr/share/licenses.
"""
# SPDX-License-Identifier: Apache-2.0
import pathlib
import re
import shutil
import subprocess
import sys

from auditwheel.wheeltools import InWheel

SHARE = pathlib.Path("/usr/share")


def package_of(library):
    """The name of the system's package with a library; one of several architectures has it."""
    if shutil.which("dpkg"):
        command = ["dpkg", "-S", f"*/{library}"]
    else:
        command = ["rpm", "-qf", "--queryformat", "%{NAME}:\n", f"/usr/lib64/{library}"]
    found = subprocess.run(command, check=False, capture_output=True, text=True)
    if found.returncode:
        sys.exit(f"no package has {library}: {found.stderr.strip()}")
    return found.stdout.split(":")[0]


def texts_of(package):
    """The files that state a package's licences."""
    debian = SHARE / "doc" / package / "copyright"
    found = [debian] if debian.exists() else sorted((SHARE / "licenses" / package).glob("*"))
    if not found:
        sys.exit(f"{package} states no licence in {debian} or {SHARE / 'licenses' / package}")
    return found


def main(wheel):
    with InWheel(wheel, wheel) as place:
        info = next(pathlib.Path(place).glob("*.dist-info"))
        for library in sorted(pathlib.Path(place).glob("*.libs/*.so*")):
            package = package_of(re.sub("-[0-9a-f]{8}(?=[.])", "", library.name))
            to = info / "licenses" / "bundled" / package
            to.mkdir(parents=True, exist_ok=True)
            for text in texts_of(package):
                shutil.copy(text, to)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]).resolve())
