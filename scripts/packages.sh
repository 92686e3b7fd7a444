#!/bin/sh
# Builds the Debian packages of what is committed and tries them:
#
#     sh scripts/packages.sh [--chroot]
#
# They are built twice, from a clone and from an archive of git, which must give the same
# bits in two folders; lintian reads them; they are unpacked into an empty folder, where the program runs
# and programs in C and C++ are compiled against the library, shared and static. What is
# compiled is kept by ccache. With DEB_BUILD_OPTIONS=noopt, as tests ask for, compilers take
# half the time, and products more. Packages are left in build/packages/git. With --chroot they are
# also installed and used in a new Debian 12, which mmdebstrap makes in build/packages/chroot.
# SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
source=$PWD
out=$PWD/build/packages
root=$out/root
limit=6000 # KiB of the library and the program, installed
version=$(dpkg-parsechangelog -S Version | sed 's/-.*//')
rm -rf "$out"
mkdir -p "$out/git" "$out/archive" "$root"

cache=$(ccache --get-config cache_dir) # debhelper gives builds another home

stop() { echo "$*"; exit 1; }

# build FOLDER: the packages of the sources below it.
build() {
    cd "$out/$1/danaus-$version"
    CCACHE_DIR=$cache CMAKE_C_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 \
        DEB_BUILD_OPTIONS="parallel=$(nproc) nocheck noautodbgsym ${DEB_BUILD_OPTIONS-}" \
        dpkg-buildpackage -b -us -uc > "$out/$1.log" 2>&1 ||
        { tail -n 40 "$out/$1.log"; exit 1; }
    cd "$source"
}

git clone -q . "$out/git/danaus-$version"
git archive --prefix="danaus-$version/" HEAD | tar -x -C "$out/archive"
build git
build archive
for package in "$out"/git/*.deb; do
    cmp "$package" "$out/archive/$(basename "$package")"
done
# No bug of Debian asks for the first package.
lintian --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs \
    "$out"/git/*.changes

for package in "$out"/git/*.deb; do
    dpkg -x "$package" "$root"
done
apt-get -qq --simulate install "$out"/git/*.deb > /dev/null # what they depend on is there
size=$(for package in danaus libdanaus0.1; do
    dpkg-deb -f "$out/git/$package"_*.deb Installed-Size
done | paste -sd +)
echo "the library and the program: $(($size)) KiB"
[ $(($size)) -lt $limit ] || stop "that is more than $limit"

libraries=$(dirname "$(echo "$root"/usr/lib/*/libdanaus.a)")
program=$root/usr/bin/danaus
needed=$(readelf -d "$program" "$libraries/libdanaus.so" |
    sed -n 's/.*(NEEDED).*\[\(.*\)\.so\..*\]/\1/p' | sort -u | paste -sd ' ')
echo "they need $needed"
for library in $needed; do
    case $library in
    libdanaus | libc | libm | libjansson | libsndfile | libsamplerate) ;;
    libutf8proc | ld-linux-*) ;;
    *) stop "$library is one too many" ;;
    esac
done
! readelf -d "$program" | grep -E 'RPATH|RUNPATH' || stop "paths of the builder's"
[ "$(LD_LIBRARY_PATH=$libraries "$program" --version | tr -dc 0-9.)" = "$version" ] ||
    stop "the program and the package are of two versions"
sh scripts/check_symbols.sh "$libraries/libdanaus.so"
sh tests/install/use.sh "$root/usr" "$version"

[ "${1-}" = --chroot ] || exit 0
echo "in a new system"
mmdebstrap --quiet --variant=apt --include=g++,make,cmake,pkgconf bookworm "$out/chroot"
cp -r "$out"/git/*.deb tests/install "$out/chroot/root"
chroot "$out/chroot" sh -euc "cd /root
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends ./*.deb > install.log 2>&1 ||
        { tail install.log; exit 1; }
    danaus --version
    sh install/use.sh /usr $version"
