if ! getent passwd plinth >/dev/null; then
	if command -v systemd-sysusers >/dev/null; then
		systemd-sysusers plinth.conf
	else
		useradd --system --user-group --home-dir /var/lib/plinth --no-create-home --shell /usr/sbin/nologin plinth
	fi
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	if [ "$1" -eq 1 ]; then
		systemctl preset plinth.service || :
	else
		systemctl try-restart plinth.service || :
	fi
fi
