#!/bin/bash
echo "kernel $(uname -r)"
cat /proc/cmdline
jq 'add' <"$RUN_INPUT" >"$RUN_RESULT"
