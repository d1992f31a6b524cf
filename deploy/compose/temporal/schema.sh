#!/bin/sh
# Creates Temporal's two databases, or brings them to this version of the server. Again does no harm: what is there stays.
set -eu
SQL_PASSWORD=$(cat /run/secrets/postgres_password)
export SQL_PASSWORD

bring_up() { # database, directory of its versions
    tool="temporal-sql-tool --plugin postgres12 --ep postgres -p 5432 -u temporal --db $1"
    $tool create
    $tool setup-schema -v 0.0
    $tool update-schema -d "/etc/temporal/schema/postgresql/v12/$2/versioned"
}

bring_up temporal temporal
bring_up temporal_visibility visibility
