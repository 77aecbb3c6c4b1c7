#!/bin/sh
# Installs what the browser, Redis and load tests drive, where it is missing and can be installed.
# Where it cannot be, says so in one line and lets the tests go on: they leave out what needs it.
set -eu
missing=""
command -v chromium >/dev/null 2>&1 || missing="$missing chromium"
command -v redis-server >/dev/null 2>&1 || missing="$missing redis-server"
command -v pandoc >/dev/null 2>&1 || missing="$missing pandoc"
command -v nginx >/dev/null 2>&1 || missing="$missing nginx-light"
command -v openssl >/dev/null 2>&1 || missing="$missing openssl"
command -v wrk >/dev/null 2>&1 || missing="$missing wrk"
[ -z "$missing" ] && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "Not installed:$missing; tests that need them are left out. Get them with: sudo make system" >&2
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
# The packages' own services are not wanted: tests start their own on free ports.
printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d && chmod +x /usr/sbin/policy-rc.d
trap 'rm -f /usr/sbin/policy-rc.d' EXIT
echo "Installing$missing"
apt-get update -qq
# shellcheck disable=SC2086
apt-get install -y -qq --no-install-recommends $missing >/dev/null
