#!/bin/sh
# Plays the program `heroku` for tests of bin/setup: writes down how it was called, and keeps what
# there is as lines of files in $STUB. It knows the words of refusals, no rights and no cluster.
printf '%s\n' "heroku $*" >>"$STUB/calls"
command=$1
shift

refuse() {
    echo " ▸    $1" >&2
    exit 1
}

app='' words='' partitions=''
while [ $# -gt 0 ]; do
    case $1 in
        --app) app=$2 && shift ;;
        --partitions) partitions=$2 && shift ;;
        --as | --retention-time | --remote) shift ;;
        --*) ;;
        *) words="$words $1" ;;
    esac
    shift
done
word=${words# }

# What stands behind the topic or the group is the cluster, which must be said where there are two.
case $command in
    kafka:topics:* | kafka:consumer-groups*)
        word=${word%% *}
        kafkas=$(grep -c '^heroku-kafka:' "$STUB/addons")
        cluster=${words##* }
        case $command$kafkas=$cluster in
            *[01]=* | *=*_URL) ;;
            *) refuse "found more than one kafka add-on on $app: kafka-a-1, kafka-b-2" ;;
        esac ;;
esac

there() {
    grep -qx -- "$2" "$STUB/$1"
}

case $command in
    auth:whoami) there state logged-in || refuse "not logged in" ;;
    plugins) cat "$STUB/plugins" ;;
    *) there apps "$app" || refuse "Couldn't find that app." ;;
esac

case $command in
    addons) sed 's/^\([a-z-]*\):.*/{"name": "x-1", "addon_service": {"name": "\1"}, "plan": {"name": "&"}}/' "$STUB/addons" ;;
    addons:create) echo "$word" >>"$STUB/addons" ;;
    config) cat "$STUB/config" ;;
    config:get) sed -n "s/^$word=//p" "$STUB/config" ;;
    config:set)
        sed -i "/^${word%%=*}=/d" "$STUB/config"
        echo "$word" >>"$STUB/config" ;;
    kafka:topics:create)
        ! there refused "$word" || refuse "the plan has no room for it"
        ! there topics "$word" || refuse "topic $word already exists"
        echo "$word $partitions" >>"$STUB/widths"
        echo "$word" >>"$STUB/topics" ;;
    kafka:topics:info)
        there topics "$word" || refuse "topic $word is not available yet"
        printf '=== kafka-x-1 :: %s\n\n' "$word"
        sed -n "s/^$word \([0-9]*\)$/Partitions:         \1 partitions/p" "$STUB/widths" ;;
    kafka:consumer-groups:create)
        ! there groups "$word" || refuse "consumer group $word already exists"
        echo "$word" >>"$STUB/groups" ;;
    kafka:consumer-groups) cat "$STUB/groups" ;;
    ps:scale)
        [ -s "$STUB/formation" ] || refuse "No process types on $app."
        for size in $words; do
            sed -i "s/\\b${size%%=*}=[0-9]*/$size/" "$STUB/formation"
        done
        cat "$STUB/formation" ;;
    auth:whoami | plugins | apps:info | kafka:wait | pg:wait | git:remote) ;;
    *) refuse "$command is not a heroku command." ;;
esac
