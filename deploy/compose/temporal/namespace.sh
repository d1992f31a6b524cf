#!/bin/sh
# Creates the namespace that relight uses, if it is not there. Reads TEMPORAL_ADDRESS, NAMESPACE and RETENTION.
set -eu
until temporal operator cluster health; do
    sleep 2
done
temporal operator namespace describe --namespace "$NAMESPACE" >/dev/null 2>&1 ||
    temporal operator namespace create --namespace "$NAMESPACE" --retention "$RETENTION"
