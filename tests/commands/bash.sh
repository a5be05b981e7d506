#!/bin/bash
. "${0%/*}/common/shell.sh"
