# Completion of stint for fish: stint completion fish > ~/.config/fish/completions/stint.fish
function __stint_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l found ($words[1] complete-word -- $words[2..-1] 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c stint -f -a '(__stint_complete)'
