# shellcheck shell=bash
# For scripts that source it: step TITLE COMMAND... runs a command quietly, shows its progress
# and says how long it took. A command gives progress by printing lines such as
#
#   progress: 120 s, 812 of 1940 packages compiled, about 3 min left
#
# and tells the user something that stays by printing lines that begin with "note: ".
#
# A step that fails shows the command's output, runs explain if the script has such a
# function, and ends the script. The script's EXIT trap calls end_steps.
steps=$(mktemp -d)
progress_every=30 # seconds between lines where there is no terminal
watcher=''

step() {
  local title=$1 start=$SECONDS
  shift
  printf '  %-58s' "$title"
  : >"$steps/log"
  # The command stays in the foreground, where Ctrl-C reaches it.
  watch_progress "$start" $((${#title} < 58 ? 61 : ${#title} + 3)) &
  watcher=$!
  if "$@" >"$steps/log" 2>&1; then
    end_progress "$title"
    printf '%4d s\n' $((SECONDS - start))
    sed -n 's/^note: /    /p' "$steps/log"
  else
    end_progress "$title"
    printf 'FAILED\n\n%s\n' "demo: \"$title\" failed. Its output:" >&2
    sed '/^progress: /d' "$steps/log" | tail -n 50 >&2
    if declare -F explain >/dev/null; then explain >&2 || true; fi
    exit 1
  fi
}

on_terminal() { [[ -t 1 && ${TERM:-dumb} != dumb ]]; }

# watch_progress rewrites the line below the step on a terminal and adds lines elsewhere. Of a
# command that prints no progress it shows the seconds.
watch_progress() {
  local start=$1 column=$2 shown=$1 text
  while kill -0 $$ 2>/dev/null; do # $$ is the script, which may be killed
    sleep 1 >/dev/null 2>&1        # and must not keep a pipe open then
    on_terminal || ((SECONDS - shown >= progress_every)) || continue
    text=$(sed -n 's/^progress: //p' "$steps/log" | tail -n 1)
    [[ -n $text ]] || ((SECONDS - start < 5)) || text="$((SECONDS - start)) s"
    [[ -n $text ]] || continue
    shown=$SECONDS
    if on_terminal; then
      # In the next line, cut where the terminal ends, and back to the end of the title.
      printf '\n\e[?7l\e[K    %s\e[?7h\e[A\e[%dG' "$text" "$column"
    else
      printf '\n    %s' "$text"
    fi
    : >"$steps/shown"
  done
}

# end_progress leaves the cursor where the title ends.
end_progress() {
  [[ -n $watcher ]] || return 0
  kill "$watcher" 2>/dev/null || true
  wait "$watcher" 2>/dev/null || true
  watcher=''
  [[ -e $steps/shown ]] || return 0
  rm "$steps/shown"
  if on_terminal; then
    printf '\e[J'
  else
    printf '\n  %-58s' "$1"
  fi
}

# A watcher that is killed before it has forgotten the script's trap comes here, too.
end_steps() {
  ((BASHPID == $$)) || return 0
  end_progress stopped
  rm -rf "$steps"
}
