#!/bin/bash
echo "kernel $(uname -r)"
jq 'add' <"$RUN_INPUT" >"$RUN_RESULT"
