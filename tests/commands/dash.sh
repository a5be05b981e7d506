#!/bin/dash
. "${0%/*}/common/shell.sh"
