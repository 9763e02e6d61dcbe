#!/bin/sh
# vendor.sh: fetches the libraries of the console's page from npm, as packages.txt lists them, checks their integrity and
# writes them into internal/console/web/static/vendor, with their licences and a list of checksums. A browser resolves no
# names of packages without an inline import map, which the page's Content-Security-Policy refuses: therefore imports of
# packages are rewritten as imports of the files here. Nothing else is changed but references to source maps.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=$here/../../internal/console/web/static/vendor
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf "$out"
mkdir -p "$out"
grep -v '^#' "$here/packages.txt" >"$work/list"
# A script of sed that rewrites the import of each package. preact/hooks is a file of preact.
while read -r package _ _ from to; do
	case $from in hooks/*) package=$package/hooks ;; esac
	printf "s#%s *['\"]%s['\"]#%s\"./%s\"#g\n" '\(from\|import\)' "$package" '\1' "$to"
done <"$work/list" >"$work/imports"
echo 's,//# sourceMappingURL=.*,,' >>"$work/imports"
while read -r package version integrity from to; do
	archive=$(cd "$work" && npm pack --silent "$package@$version")
	got=sha512-$(openssl dgst -sha512 -binary "$work/$archive" | openssl base64 -A)
	if [ "$got" != "$integrity" ]; then
		echo "$package@$version has the integrity $got, not $integrity" >&2
		exit 1
	fi
	rm -rf "$work/package"
	tar xzf "$work/$archive" -C "$work"
	sed -f "$work/imports" "$work/package/$from" >"$out/$to"
	cp "$work/package/LICENSE" "$out/LICENSE.$(echo "$package" | tr -d @ | tr / -).txt"
done <"$work/list"
(cd "$out" && sha256sum -- * >"$work/sums" && mv "$work/sums" SHA256SUMS.txt)
