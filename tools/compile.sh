#!/bin/sh
# compile.sh ARGUMENTS PACKAGES: go build with the arguments. The first time go build says nothing for minutes; this says
# what it does, and how far it is where there is a terminal. If all is compiled already it prints nothing.
set -u
terminal=
if [ -t 2 ] && [ "${TERM:-dumb}" != dumb ]; then terminal=1; fi
for packages; do :; done # the last argument

say() { printf "${terminal:+\r\033[K}%s\n" "$*" >&2; }
show() { if [ -n "$terminal" ]; then printf '\r\033[K%s' "$*" >&2; fi; }

# -v names each package when its turn comes. What is no name, such as "# plinth/object" and the lines after it, is an
# error of the compiler.
{
	go build -v "$@" 2>&1
	echo "exit status $?"
} | {
	fetched=0 compiled=0 total=
	while IFS= read -r line; do
		case $line in
		"exit status "*)
			if [ $((fetched + compiled)) != 0 ]; then show ''; fi
			exit "${line#exit status }"
			;;
		"go: downloading "*)
			if [ $fetched = 0 ]; then say "Fetching the modules that go.mod names, the first time only."; fi
			fetched=$((fetched + 1))
			show "$fetched modules"
			;;
		*[!A-Za-z0-9_./~-]*) say "$line" ;;
		*)
			if [ $compiled = 0 ]; then
				total=$(go list -deps "$packages" | wc -l)
				say "Compiling up to $((total)) packages, the first time only: some minutes on two processors."
			fi
			compiled=$((compiled + 1))
			show "$compiled of $((total)) packages: $line"
			;;
		esac
	done
}
