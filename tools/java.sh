#!/bin/sh
# Spark needs Java 17 or newer. It is used if it is here; installed if we may (root, on a system with apt); else we say so.
version=$(java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -1)
[ "${version:-0}" -ge 17 ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "Java 17 or newer is not here; installing the system's own"
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends default-jre-headless; } >/dev/null 2>&1 && exit 0
fi
echo "Spark needs Java 17 or newer, which is not here: install it (on Debian: apt install openjdk-17-jre-headless)."
echo "Everything else goes on without it."
