#!/bin/sh
# Starts `coterie serve` in a container. The variables are those of the image apache/kafka: KAFKA_NUM_PARTITIONS=4.
#
# Without KAFKA_LISTENERS the broker listens at the ports of KAFKA_ADVERTISED_LISTENERS, as that image does, or at 9092.
# With COTERIE_CONTROLS_TOKEN it has test controls at port 9099.
set -eu

if [ -z "${KAFKA_LISTENERS:-}" ]; then
    : "${KAFKA_ADVERTISED_LISTENERS:=PLAINTEXT://localhost:9092}"
    KAFKA_LISTENERS=$(printf %s "$KAFKA_ADVERTISED_LISTENERS" | sed -E 's#://[^,]*:([0-9]+)#://0.0.0.0:\1#g')
    export KAFKA_LISTENERS KAFKA_ADVERTISED_LISTENERS
fi
if [ -n "${COTERIE_CONTROLS_TOKEN:-}" ]; then
    exec coterie serve --test-controls --controls 0.0.0.0:9099 "$@"
fi
exec coterie serve --memory "$@"
