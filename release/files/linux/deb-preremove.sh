#!/bin/sh
set -e
# An upgrade leaves the server running until the new program is there.
if [ "$1" = remove ]; then
	if [ -d /run/systemd/system ]; then
		systemctl disable --now plinth.service
	elif command -v systemctl >/dev/null; then
		systemctl disable plinth.service >/dev/null || true
	fi
fi
