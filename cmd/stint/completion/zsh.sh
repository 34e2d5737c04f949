#compdef stint
# Completion of stint for zsh: stint completion zsh > "${fpath[1]}/_stint"
_stint() {
    local -a found
    local name text
    while IFS=$'\t' read -r name text; do
        found+=("${name//:/\\:}${text:+:$text}")
    done < <("${words[1]}" complete-word -- "${(@)words[2,CURRENT]}" 2>/dev/null)
    if (( $#found )); then
        _describe stint found
    else
        _files
    fi
}
if [ "$funcstack[1]" = "_stint" ]; then
    _stint "$@"
else
    compdef _stint stint
fi
