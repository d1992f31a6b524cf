#!/bin/bash
# Slurm's EpilogSlurmctld: tells relight's sensor which job has just ended, so that it looks at once.
#
# Copy to the host of slurmctld, name the sensors below, and write into slurm.conf
#   EpilogSlurmctld=/etc/slurm/epilogslurmctld.sh
# (then `scontrol reconfigure`). docs/how-to/slurm-setup.md says when this is worth it. If you have such a script already, call
# this one from it.
#
# Slurm keeps a job COMPLETING until its script has ended: this one sends one datagram to each sensor, waits for nobody,
# and never fails. What is lost costs nothing; the sensor asks Slurm by itself too.

# host:port of each sensor (setting sensor.wake_address). Numbers, not names: to look a name up takes time.
SENSORS="${RELIGHT_SENSORS:-127.0.0.1:9467}"

exec </dev/null >/dev/null 2>&1
ids="${SLURM_JOB_ID:-}"
if [[ -n "${SLURM_ARRAY_JOB_ID:-}" && -n "${SLURM_ARRAY_TASK_ID:-}" ]]; then
    ids="$ids ${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}"
fi
for sensor in $SENSORS; do
    host="${sensor%:*}" port="${sensor##*:}"
    [[ "$host" =~ ^[0-9a-fA-F.:]+$ && "$port" =~ ^[0-9]+$ ]] || continue
    (printf '%s\n' "$ids" >"/dev/udp/$host/$port")
done
exit 0
