#!/bin/sh
# Runs schemathesis against a server of its own: every operation of the OpenAPI document, with good and bad
# input, must answer as documented and never with 5xx.
#
#   crates/server/tests/schemathesis.sh [examples for each operation, 40 by default]
set -eu
cd "$(dirname "$0")/../../.."
target=${CARGO_TARGET_DIR:-target}
venv=$target/schemathesis
if [ ! -x "$venv/bin/schemathesis" ]; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check 'schemathesis>=4,<5'
fi
cargo build --quiet --workspace --all-features --example bare_server
log=$(mktemp)
data=$(mktemp -d)
"$target/debug/examples/bare_server" "$data" >"$log" &
server=$!
trap 'kill "$server" 2>/dev/null || true; rm -rf "$data" "$log"' EXIT INT TERM
tries=0
until [ "$(wc -l <"$log")" -ge 2 ]; do
    tries=$((tries + 1))
    if [ "$tries" -gt 100 ] || ! kill -0 "$server"; then
        echo "the server did not start" >&2
        exit 1
    fi
    sleep 0.1
done
url=$(sed -n 1p "$log")
token=$(sed -n 2p "$log")
"$venv/bin/schemathesis" run "$url/openapi.json" \
    --header "Authorization: Bearer $token" \
    --checks not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance \
    --max-examples "${1:-40}" --seed 1 --request-timeout 20 --exclude-operation-id events --suppress-health-check all
# The stream is asked with an end, or it would go on for ever.
"$venv/bin/schemathesis" run "$url/openapi.json" --include-operation-id events \
    --header "Authorization: Bearer $token" --checks not_a_server_error,status_code_conformance,content_type_conformance \
    --max-examples 5 --seed 1 --request-timeout 2 --suppress-health-check all || {
    # An endless answer is a time-out to schemathesis and no fault of the server.
    kill -0 "$server"
    curl -fsS "$url/readyz" >/dev/null
}
