#!/bin/sh
set -e
[ ! -d /run/systemd/system ] || systemctl daemon-reload
# The objects of users are worth more than a clean disk: they stay, also when the package is purged.
if [ "$1" = purge ] && [ -d /var/lib/plinth ]; then
	echo "The data is still in /var/lib/plinth, and the user plinth is still there." >&2
fi
