package config

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/option"
)

// amount is an option that has bounds.
type amount interface {
	bind(flags *flag.FlagSet)
	check() error
}

// number is an option that counts something. Its default is the value before flags are parsed.
type number[T int | int64] struct {
	option      option.Option
	value       *T
	least, most int64
	help        string
}

func (n number[T]) bind(flags *flag.FlagSet) {
	switch value := any(n.value).(type) {
	case *int:
		flags.IntVar(value, n.option.Name(), *value, n.help)
	case *int64:
		flags.Int64Var(value, n.option.Name(), *value, n.help)
	}
}

func (n number[T]) check() error {
	if value := int64(*n.value); value < n.least || value > n.most {
		return fmt.Errorf("%s is %d, want %d to %d", n.option.Name(), value, n.least, n.most)
	}
	return nil
}

// duration is an option that says how long. Its default is the value before flags are parsed.
type duration struct {
	option option.Option
	value  *time.Duration
	least  time.Duration
	help   string
}

func (d duration) bind(flags *flag.FlagSet) {
	flags.DurationVar(d.value, d.option.Name(), *d.value, d.help)
}

func (d duration) check() error {
	if *d.value < d.least {
		return fmt.Errorf("%s is %s, want at least %s", d.option.Name(), *d.value, d.least)
	}
	return nil
}

// choice is a flag that takes one of several names.
type choice[T comparable] struct {
	value *T
	names map[T]string
}

func (c choice[T]) String() string { return c.names[*c.value] }

func (c choice[T]) Set(text string) error {
	for value, name := range c.names {
		if name == text {
			*c.value = value
			return nil
		}
	}
	return errors.New("want " + strings.Join(slices.Sorted(maps.Values(c.names)), " or "))
}

// appendTo returns the function of a flag that users may repeat.
func appendTo(values *[]string) func(string) error {
	return func(text string) error {
		*values = append(*values, strings.Split(text, ",")...)
		return nil
	}
}
