#!/bin/bash
# shellcheck source=/dev/null
# Waiting runner of the shell template: says that it waits, sleeps in one
# read, then becomes the script.
#
# Files are in /run/hutch (see runner_files.h); standard input is the input's
# JSON text; $RUN_INPUT, $RUN_CONFIG and $RUN_RESULT name files.  The exit
# status of the script is that of the run.

# A child that is gone was started once: fork's first time is the slowest.
(:)

# kind 2 = waiting, code 0, length 0; see struct runner_message.
printf '\x02\0\0\0\0\0\0\0\0\0\0\0' >&15
read -r -N 1 -u 15 REPLY || exit 1
exec 15>&-
BASH_ARGV0=run
unset REPLY BASH_ENV
# What bash made up or looked up at its start, before this was a sandbox.
RANDOM=$SRANDOM
SECONDS=0
read -r HOSTNAME < /proc/sys/kernel/hostname
set --
[ -s "${RUN_INPUT%/*}/env" ] && . "${RUN_INPUT%/*}/env"
. "${RUN_INPUT%/*}/code"
