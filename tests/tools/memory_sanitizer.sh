#!/bin/sh
# memory_sanitizer.sh FOLDER: the unit tests and the fuzz corpus under clang's memory sanitizer, in FOLDER (made anew).
# It needs every library to be instrumented: cJSON, libcsv and libyaml are built so from Debian's sources, whose lists are
# kept in FOLDER too.  What is not: libstdc++, so the tests that read TOML are left out (readings, emit, emit_walk, patch, round_trip,
# fuzz-toml), and GSL, with whose fits the calibrations are: both run under valgrind's memcheck instead, which follows
# any library (fault/interrupted.sh); and locale, whose locales localedef makes.
# Exit 77: no sources to be had.
set -eu
source=$(cd "$(dirname "$0")/../.." && pwd)
folder=${1:?usage: memory_sanitizer.sh FOLDER}
mkdir -p "$folder/parts" "$folder/lists" "$folder/lib" "$folder/include/cjson" "$folder/pc"
folder=$(cd "$folder" && pwd)
cd "$folder"

for list in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
	[ -s "$list" ] && grep -q debian "$list" && sed 's/^Types: deb$/Types: deb-src/; s/^deb /deb-src /' "$list" >"parts/${list##*/}"
done
apt="-q -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts=$folder/parts -o Dir::State::lists=$folder/lists"
# shellcheck disable=SC2086
{
	apt-get $apt update
	apt-get $apt source --download-only cjson libcsv libyaml
} >log 2>&1 || { tail -n 3 log; exit 77; }
for package in *.dsc; do
	dpkg-source --no-check -x "$package" >>log 2>&1
done

flags='-fsanitize=memory -fno-omit-frame-pointer -g -O1 -fPIC'
library() {                                     # NAME FILE...
	name=$1
	shift
	# shellcheck disable=SC2086
	clang $flags -I"$folder/include" $version -c "$@"
	ar rcs "$folder/lib/lib$name.a" ./*.o
}
version=
cp cjson-*/cJSON.h include/
cp cjson-*/cJSON.h include/cjson/
cp libcsv-*/csv.h include/
cp libyaml-*/include/yaml.h include/
(cd cjson-* && library cjson cJSON.c)
(cd libcsv-* && library csv libcsv.c)
version='-DYAML_VERSION_MAJOR=0 -DYAML_VERSION_MINOR=2 -DYAML_VERSION_PATCH=5 -DYAML_VERSION_STRING="0.2.5"'
(cd libyaml-*/src && library yaml ./*.c)
for pc in libcjson:cjson yaml-0.1:yaml; do
	printf 'Name: %s\nDescription: instrumented\nVersion: 1\nLibs: -L%s/lib -l%s\nCflags: -I%s/include\n' \
		"${pc%:*}" "$folder" "${pc#*:}" "$folder" >"pc/${pc%:*}.pc"
done

# clang 14 knows stat and its kin by the names that they had before glibc 2.33
cat >stat.c <<'END'
#include <fcntl.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
void __msan_unpoison(const volatile void *p, size_t n) __attribute__((weak));       /* not in meson's first probe */
#define WRAP(name, call, ...) int name(__VA_ARGS__) { long r = call; if (!r && __msan_unpoison) __msan_unpoison(st, sizeof(*st)); return (int)r; }
WRAP(fstat, syscall(SYS_fstat, fd, st), int fd, struct stat *st)
WRAP(fstat64, syscall(SYS_fstat, fd, st), int fd, struct stat64 *st)
WRAP(stat, syscall(SYS_newfstatat, AT_FDCWD, name, st, 0), const char *restrict name, struct stat *restrict st)
WRAP(stat64, syscall(SYS_newfstatat, AT_FDCWD, name, st, 0), const char *restrict name, struct stat64 *restrict st)
WRAP(lstat, syscall(SYS_newfstatat, AT_FDCWD, name, st, AT_SYMLINK_NOFOLLOW), const char *restrict name, struct stat *restrict st)
WRAP(lstat64, syscall(SYS_newfstatat, AT_FDCWD, name, st, AT_SYMLINK_NOFOLLOW), const char *restrict name, struct stat64 *restrict st)
END
clang -O1 -fPIC -D_LARGEFILE64_SOURCE -c stat.c -o stat.o

CC=clang CXX=clang++ CFLAGS="-I$folder/include" PKG_CONFIG_PATH="$folder/pc" LDFLAGS="-L$folder/lib $folder/stat.o" \
	meson setup -Db_sanitize=memory -Db_lundef=false -Dwarning_level=0 build "$source" >/dev/null
ninja -C build >log 2>&1 || { cat log; exit 1; }
tests=$(meson test -C build --list --suite unit --suite fuzz | sed -n 's,^.* / ,,p' | grep -vxE 'readings|emit|emit_walk|patch|round_trip|round_trip_real|fuzz-toml|locale')
# shellcheck disable=SC2086
meson test -C build --no-rebuild --print-errorlogs --timeout-multiplier 6 $tests
