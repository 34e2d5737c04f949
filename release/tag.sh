#!/usr/bin/env bash
# Gives every published module a tag for a version, each after those that it
# requires, and prints the commands that push them:
#
#     release/tag.sh v0.1.0
#
# It makes none where something is not committed, a tag is there already, or a
# module requires another version of the others.
set -euo pipefail
cd "$(dirname "$0")/.."

version=${1:-}
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || { echo "usage: release/tag.sh v0.1.0" >&2; exit 2; }
[ -z "$(git status --porcelain)" ] || { echo "not all is committed:" >&2; git status --short >&2; exit 1; }

modules=(. redisstore grpclimit rulesdb adapters adapters/caddylimit service planner cmd)
tags=()
for m in "${modules[@]}"; do
	other=$(grep -E "^(require )?[[:space:]]*github.com/stint-dev/stint\S* v" "$m/go.mod" | grep -v " $version\b" || true)
	[ -z "$other" ] || { printf '%s/go.mod: write %s into it, and into go.work:\n%s\n' "$m" "$version" "$other" >&2; exit 1; }
	tags+=("${m/#./}")
	tags[-1]=${tags[-1]:+${tags[-1]}/}$version
done
there=$(git tag --list "${tags[@]}")
[ -z "$there" ] || { printf 'there are tags already:\n%s\n' "$there" >&2; exit 1; }
for t in "${tags[@]}"; do git tag "$t"; done
# GitHub starts no workflow for a push of more than three tags, so the tag that a
# release is made of goes by itself.
echo git push --atomic origin "${tags[@]:1}"
echo git push origin "$version"
