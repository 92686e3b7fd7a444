#!/bin/sh
# Builds the site of danaus in build/site/html from README.md, docs, the headers of
# include and the Python package. Links that lead nowhere, and every other warning, fail.
#
#     sh scripts/site.sh
#
# Sphinx and what it needs come from PyPI, into build/site/venv.
# SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
site=build/site venv=build/site/venv
[ -x $venv/bin/python ] || python3 -m venv $venv
$venv/bin/python -m pip install -q --disable-pip-version-check -r docs/site/requirements.txt
rm -rf $site/source $site/html
mkdir -p $site/source
git ls-files README.md CHANGELOG.md CONTRIBUTING.md LICENSE docs examples include python/danaus bench/results |
    tar -c -T - | tar -x -C $site/source
rm -r $site/source/docs/site
$venv/bin/python docs/site/headers.py $site/source/api \
    $(ls include/danaus/*.h | grep -v /danaus.h)
$venv/bin/python -m sphinx -q -W --keep-going -b html -c docs/site $site/source $site/html
echo "$site/html/README.html"
