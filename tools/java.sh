#!/bin/sh
# Install a Java that Spark can use (17 or newer), unless there is one. Needs root and apt.
version=$(java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -1)
if [ "${version:-0}" -ge 17 ]; then
    echo "Java $version is installed."
elif [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "Installing default-jre-headless with apt-get"
    apt-get update -qq && apt-get install -y -qq --no-install-recommends default-jre-headless
else
    echo "Spark needs Java 17 or newer. Install it with your package manager (Debian: sudo apt install default-jre-headless)." >&2
    exit 1
fi
