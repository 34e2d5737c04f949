# Completion of stint for bash: source <(stint completion bash)
_stint() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        line=${line%%$'\t'*}
        # Readline has cut the word at "=": it wants what comes behind.
        case $line in --*=*) line=${line#*=} ;; esac
        COMPREPLY+=("$line")
    done < <("${COMP_WORDS[0]}" complete-word -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _stint stint
