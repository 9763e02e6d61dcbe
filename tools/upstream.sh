#!/bin/sh
# upstream.sh TESTS PLINTH [PACKAGE...]: runs Kubernetes' own integration tests (TESTS/README.md) against the program
# PLINTH, a package at a time, and leaves what each of them said in a temporary folder. What the real kube-apiserver
# passes there is in TESTS/baseline.json: everything else is left out. A test that does not pass is an error unless it is
# in upstream-known.txt, where its reason is. (On a machine with other work tests run out of time: again with
# UPSTREAM_JOBS=1.)
# With UPSTREAM_ETCD=PROGRAM each server has its objects in an etcd of its own. With UPSTREAM_PLANE=NAME the tests run in
# a plane of that name; what is known of planes is known then, too.
set -eu
tests=$1 plinth=$2
shift 2
if [ ! -x "$tests/run.sh" ]; then
	echo "upstream: Kubernetes' own tests are not in $tests (make upstream UPSTREAM_TESTS=FOLDER): nothing is run"
	exit 0
fi
program=$(realpath "$plinth")
[ $# -gt 0 ] || set -- $(awk '
	FILENAME == ARGV[1] { if (/^".*: [{]$/) passes[$1] = 1; next }
	/^[a-z]/ && ("\"" $1 "\":") in passes { print $1 }' "$tests/baseline.json" "$tests/packages.txt")
results=$(mktemp -d -t plinth-upstream.XXXXXX)
echo "upstream: results are in $results"
# The tests are about a kube-apiserver alone, with its defaults: everybody may do everything, and no controllers run.
export PLINTH="$results/plinth"
cat >"$PLINTH" <<PROGRAM
#!/bin/sh
[ "\$*" != "serve --help" ] || set -- serve --help-all # the launcher leaves out flags that the server does not have
case " \$* " in *" --authorization-"[mc]*) ;; *) set -- "\$@" --authorization-mode=AlwaysAllow ;; esac
${UPSTREAM_ETCD:+. $results/etcd.sh}
${UPSTREAM_PLANE:+. $results/users.sh}
exec $program "\$@" ${UPSTREAM_PLANE:+--planes --planes-egress=127.0.0.0/8} --controllers=-garbage-collector-controller
PROGRAM
# The launcher of a plane starts the server by the other launcher, and leaves the address of the plane in place of the
# server's own. In a plane its roles alone decide, so where everybody may do everything there is one that says so.
launcher=$(realpath "$tests/launch-plinth.sh")
if [ -n "${UPSTREAM_PLANE:-}" ]; then
	cat >"$results/launch-plane.sh" <<LAUNCHER
#!/bin/sh
made=\$APISERVER_KUBECONFIG first=\$APISERVER_TMP_DIR/first.kubeconfig
plane=https://127.0.0.1:\$APISERVER_PORT/clusters/$UPSTREAM_PLANE
APISERVER_KUBECONFIG=\$first "$launcher" "\$@" &
server=\$!
trap 'kill "\$server" 2>/dev/null; wait "\$server"; exit 0' TERM INT EXIT
until [ -s "\$first" ]; do
	kill -0 "\$server" || exit 1
	sleep 0.02
done
until "$program" plane list --kubeconfig "\$first" | grep -q "^$UPSTREAM_PLANE "; do # it is there after a restart
	kill -0 "\$server" || exit 1
	"$program" plane create "$UPSTREAM_PLANE" --kubeconfig "\$first" || sleep 0.1
done
case " \$* " in
*" --authorization-mode=AlwaysAllow "*) open=1 ;;
*" --authorization-"[mc]*) open= ;;
*) open=1 ;;
esac
roles=\$plane/apis/rbac.authorization.k8s.io/v1/clusterrolebindings
token=\$(sed -n 's/.*token: "\(.*\)".*/\1/p' "\$first")
ask() { curl -skf -o /dev/null -H "Authorization: Bearer \$token" -H 'Content-Type: application/yaml' "\$@"; }
[ -z "\$open" ] || until ask "\$roles/everybody" || ask --data-binary "@$results/open.yaml" "\$roles"; do
	kill -0 "\$server" || exit 1
	sleep 0.1
done
sed "s,server: \"[^\"]*\",server: \"\$plane\"," "\$first" >"\$made.tmp"
mv "\$made.tmp" "\$made"
wait "\$server"
LAUNCHER
	cat >"$results/open.yaml" <<ROLE
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: everybody}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:authenticated"}
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:unauthenticated"}
ROLE
	# A user of the process whose name begins with system: is refused in a plane, and the administrator has such a name.
	cat >"$results/users.sh" <<'USERS'
for a; do
	case $a in */tokens.csv) sed -i 's/,system:apiserver,/,administrator,/' "$a" ;; esac
done
USERS
	chmod +x "$results/launch-plane.sh"
	launcher=$results/launch-plane.sh
fi
# The server takes the place of this shell, and the etcd ends with it. Its data is below the folder of --data-dir, so that
# a server that is started again finds it; --storage gives way to it.
cat >"$results/etcd.sh" <<PROGRAM
if [ "\$1" = serve ] && [ "\${2:-}" != --help ]; then
	dir= skip=
	for a; do
		shift
		case \$skip\$a in
		--data-dir) skip=dir ;;
		--storage) skip=storage ;;
		dir*) dir=\$a skip= ;;
		storage*) skip= ;;
		*) set -- "\$@" "\$a" ;;
		esac
	done
	mkdir -p "\$dir"
	at=\$(mktemp -d "$results/e.XXXX") # the path of a socket must be short
	setpriv --pdeathsig KILL ${UPSTREAM_ETCD:-} --data-dir "\$dir/etcd" --log-level error --unsafe-no-fsync \
		--listen-client-urls "unix://\$at/c" --advertise-client-urls "unix://\$at/c" \
		--listen-peer-urls "unix://\$at/p" --initial-advertise-peer-urls "unix://\$at/p" \
		--initial-cluster "default=unix://\$at/p" >"\$at/log" 2>&1 &
	for key in sa ca; do
		[ -f "\$dir/\$key.key" ] || openssl ecparam -name prime256v1 -genkey -noout -out "\$dir/\$key.key"
	done
	[ -f "\$dir/ca.crt" ] || openssl req -x509 -new -key "\$dir/ca.key" -subj /CN=upstream-ca -days 365 -out "\$dir/ca.crt"
	set -- "\$@" --data-dir "\$dir" --etcd-servers "unix://\$at/c" --cluster-signing-cert-file "\$dir/ca.crt" \
		--cluster-signing-key-file "\$dir/ca.key"
	case \$* in *--service-account-signing-key-file*) ;; *) set -- "\$@" --service-account-signing-key-file "\$dir/sa.key" ;; esac
fi
PROGRAM
chmod +x "$PLINTH"
# unlisted prints the tests of a package that do not pass and should, but for those whose subtests it prints. A subtest
# that is not run does not pass either.
unlisted() {
	awk -v package="$1" -v storage="$([ -n "${UPSTREAM_ETCD:-}" ] && echo etcd || echo embedded)" \
		-v plane="${UPSTREAM_PLANE:+plane}" '
		function isKnown(name) {
			if (name in known) return 1
			while (sub(/[/][^/]*$/, "", name)) if (name "/*" in known) return 1
			return 0
		}
		FILENAME == ARGV[1] {
			if ($1 == package && ($2 == storage || $2 == "both" || $2 == plane)) known[$3] = 1
			next
		}
		FILENAME == ARGV[2] && /^".*: [{]$/ { of = $0; sub(/^"/, "", of); sub(/": [{]$/, "", of); next }
		FILENAME == ARGV[2] { if (of == package && sub(/^"/, "") && sub(/",?$/, "")) expected[$0] = 1; next }
		/^    ".*: [{]$/ { name = $0; sub(/^ *"/, "", name); sub(/": [{]$/, "", name) }
		/^     "result": "/ { result[name] = $2 }
		END {
			for (name in expected) if (result[name] !~ /"pass"/) {
				missed[name] = 1
				for (above = name; sub(/[/][^/]*$/, "", above);) parent[above] = 1
			}
			for (name in missed) if (!isKnown(name) && !(name in parent))
				print (result[name] ~ /"fail"/ ? "fails: " : "does not end: ") name
		}
	' "$known" "$tests/baseline.json" "$results/$1.json"
}
known=$(dirname "$0")/upstream-known.txt
failed=0
for package; do
	jobs=${UPSTREAM_JOBS:-2}
	[ "$package" != client ] || jobs=1 # two of its tests write one file: /tmp/ca.crt
	"$tests/run.sh" "$launcher" -baseline "$tests/baseline.json" -j "$jobs" -timeout 4m \
		-out "$results/$package.json" -logs "$results/$package" "$package" >"$results/$package.txt" 2>&1 || true
	grep "^$package  *[0-9]* of [0-9]* leaf tests" "$results/$package.txt" || {
		tail -n 5 "$results/$package.txt"
		failed=1
		continue
	}
	new=$(unlisted "$package")
	[ -z "$new" ] || { echo "$new"; failed=1; }
done
exit $failed
