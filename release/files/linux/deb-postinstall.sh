#!/bin/sh
set -e
[ "$1" = configure ] || exit 0

if ! getent passwd plinth >/dev/null; then
	if command -v systemd-sysusers >/dev/null; then
		systemd-sysusers plinth.conf
	else
		useradd --system --user-group --home-dir /var/lib/plinth --no-create-home --shell /usr/sbin/nologin plinth
	fi
fi

# Without a running systemd, as in a container or in an installer, nothing is started.
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	if [ -z "$2" ]; then
		systemctl enable --now plinth.service || echo "plinth.service did not start: journalctl -u plinth says why" >&2
	else
		systemctl try-restart plinth.service || echo "plinth.service did not restart: journalctl -u plinth says why" >&2
	fi
elif [ -z "$2" ] && command -v systemctl >/dev/null; then
	systemctl enable plinth.service >/dev/null || true
fi
