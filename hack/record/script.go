package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// script is what a picture shows: a session of a user at a terminal.
type script struct {
	title, desc string
	columns     int // of the terminal
	room        int // how many rows the picture may have
	redactions  []redaction
	steps       []step
}

// stepKind says what a step of a script does.
type stepKind int

const (
	stepCommand    stepKind = iota // typed and shown, with its output
	stepComment                    // typed and shown
	stepHidden                     // run and not shown
	stepUntil                      // run and not shown, again and again until it succeeds
	stepBackground                 // run and not shown until the recording ends
)

type step struct {
	kind stepKind
	line int // of the script
	text string
	exit int // the exit code that the command has to have
	// head and tail are how many lines of a longer output are shown; both are 0 if all are.
	head, tail int
}

// redaction replaces what differs between two recordings, such as the suffix of a pod's name.
type redaction struct {
	pattern *regexp.Regexp
	with    string
	line    int
}

const (
	defaultColumns = 96
	defaultRows    = 40
	mostColumns    = 200
	mostRows       = 100
)

// readScript reads a script; errors name the line.
func readScript(path string) (*script, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read script: %w", err)
	}
	defer func() { _ = file.Close() }()
	s := &script{columns: defaultColumns, room: defaultRows}
	parser := parser{script: s}
	lines := bufio.NewScanner(file)
	for number := 1; lines.Scan(); number++ {
		if err := parser.line(number, strings.TrimRight(lines.Text(), " \t")); err != nil {
			return nil, fmt.Errorf("read script: %s:%d: %w", path, number, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read script: %w", err)
	}
	if err := parser.finish(); err != nil {
		return nil, fmt.Errorf("read script: %s: %w", path, err)
	}
	return s, nil
}

// parser holds what the next command of a script gets.
type parser struct {
	*script

	exit, head, tail int
}

func (p *parser) line(number int, line string) error {
	switch {
	case line == "" || strings.HasPrefix(line, "#"):
		return nil
	case strings.HasPrefix(line, "$ "):
		p.steps = append(p.steps, step{kind: stepCommand, line: number, text: line[2:], exit: p.exit, head: p.head, tail: p.tail})
		p.exit, p.head, p.tail = 0, 0, 0
		return nil
	}
	key, value, ok := strings.Cut(line, ": ")
	if !ok {
		return fmt.Errorf("%q is neither a command, which begins with \"$ \", nor of the form \"key: value\"", line)
	}
	return p.set(number, key, value)
}

// stepKeys are the keys that are steps.
var stepKeys = map[string]stepKind{"say": stepComment, "hide": stepHidden, "until": stepUntil, "background": stepBackground}

func (p *parser) set(number int, key, value string) (err error) {
	if kind, ok := stepKeys[key]; ok {
		p.steps = append(p.steps, step{kind: kind, line: number, text: value})
		return nil
	}
	switch key {
	case "title":
		p.title = value
	case "desc":
		p.desc = strings.TrimPrefix(p.desc+" "+value, " ")
	case "size":
		err = p.size(value)
	case "fold":
		p.head, p.tail, err = pair(value, " ")
	case "exit":
		p.exit, err = strconv.Atoi(value)
	case "redact":
		err = p.redact(number, value)
	default:
		err = fmt.Errorf("unknown key %q", key)
	}
	return err
}

func (p *parser) size(value string) (err error) {
	p.columns, p.room, err = pair(value, "x")
	if err == nil && (p.columns < 20 || p.columns > mostColumns || p.room < 1 || p.room > mostRows) {
		return fmt.Errorf("size is from 20x1 to %dx%d", mostColumns, mostRows)
	}
	return err
}

func (p *parser) redact(number int, value string) error {
	expression, with, ok := strings.Cut(value, " => ")
	if !ok {
		return errors.New("a redaction is \"redact: PATTERN => TEXT\"")
	}
	pattern, err := regexp.Compile(expression)
	if err != nil {
		return fmt.Errorf("read redaction: %w", err)
	}
	p.redactions = append(p.redactions, redaction{pattern, with, number})
	return nil
}

func (p *parser) finish() error {
	switch {
	case p.title == "" || p.desc == "":
		return errors.New("a picture needs a title and a desc, for readers who do not see it")
	case p.exit != 0 || p.head != 0 || p.tail != 0:
		return errors.New("no command follows the last \"exit\" or \"fold\"")
	case len(p.commands()) == 0:
		return errors.New("there is no command to show")
	}
	return nil
}

// commands are those that the picture shows.
func (s *script) commands() (all []string) {
	for _, step := range s.steps {
		if step.kind == stepCommand {
			all = append(all, step.text)
		}
	}
	return all
}

// pair reads two numbers.
func pair(value, separator string) (first, second int, err error) {
	one, two, _ := strings.Cut(value, separator)
	first, err1 := strconv.Atoi(one)
	second, err2 := strconv.Atoi(two)
	if err := errors.Join(err1, err2); err != nil {
		return 0, 0, fmt.Errorf("read two numbers of %q: %w", value, err)
	}
	return first, second, nil
}
