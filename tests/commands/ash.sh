#!/bin/busybox ash
. "${0%/*}/common/shell.sh"
