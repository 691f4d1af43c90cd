// A transactional producer by franz-go, which does what the lines of stdin tell it, one after the other. With a group it
// is a GroupTransactSession, which reads, writes and commits its offsets. tests/clients/rust/src/main.rs does the same.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// orders are the settings of the producer.
type orders struct {
	Bootstrap       string `json:"bootstrap"`
	TransactionalID string `json:"transactional_id"`
	TimeoutMs       int64  `json:"timeout_ms"`
	Group           string `json:"group"`
	Source          string `json:"source"`
	Target          string `json:"target"`
}

// step is one line of stdin.
type step struct {
	Do    string `json:"do"`
	Value string `json:"value"`
	Count int    `json:"count"`
}

type program struct {
	told    orders
	client  *kgo.Client
	session *kgo.GroupTransactSession
}

func newProgram(told orders) (*program, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(told.Bootstrap),
		kgo.TransactionalID(told.TransactionalID),
		kgo.TransactionTimeout(time.Duration(told.TimeoutMs) * time.Millisecond),
		kgo.DefaultProduceTopic(told.Target),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}
	if told.Group == "" {
		client, err := kgo.NewClient(options...)
		return &program{told: told, client: client}, err
	}
	session, err := kgo.NewGroupTransactSession(append(options,
		kgo.ConsumerGroup(told.Group),
		kgo.SessionTimeout(2*time.Second), // so that the member of a program that was killed is soon gone
		kgo.HeartbeatInterval(200*time.Millisecond),
		kgo.ConsumeTopics(told.Source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
	)...)
	if err != nil {
		return nil, err
	}
	return &program{told: told, client: session.Client(), session: session}, nil
}

func (program *program) begin() error {
	if program.session != nil {
		return program.session.Begin()
	}
	return program.client.BeginTransaction()
}

func (program *program) send(ctx context.Context, value string) error {
	return program.client.ProduceSync(ctx, &kgo.Record{Value: []byte(value)}).FirstErr()
}

func (program *program) end(ctx context.Context, commit kgo.TransactionEndTry) error {
	if program.session == nil {
		return program.client.EndTransaction(ctx, commit)
	}
	committed, err := program.session.End(ctx, commit)
	if err == nil && committed != bool(commit) {
		return fmt.Errorf("the session ended with committed=%t", committed)
	}
	return err
}

// process writes what it has read, each value with "out-" before it.
func (program *program) process(ctx context.Context, count int) error {
	for seen := 0; seen < count; {
		fetches := program.session.PollRecords(ctx, count-seen)
		if err := fetches.Err(); err != nil {
			return err
		}
		for _, record := range fetches.Records() {
			if err := program.send(ctx, "out-"+string(record.Value)); err != nil {
				return err
			}
			seen++
		}
	}
	return nil
}

func (program *program) do(step step) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	switch step.Do {
	case "init":
		_, _, err := program.client.ProducerID(ctx)
		return err
	case "begin":
		return program.begin()
	case "send":
		return program.send(ctx, step.Value)
	case "process":
		return program.process(ctx, step.Count)
	case "commit":
		return program.end(ctx, kgo.TryCommit)
	case "abort":
		return program.end(ctx, kgo.TryAbort)
	}
	return fmt.Errorf("what is %q?", step.Do)
}

func main() {
	var told orders
	if err := json.Unmarshal([]byte(os.Args[1]), &told); err != nil {
		panic(err)
	}
	program, err := newProgram(told)
	if err != nil {
		panic(err)
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var step step
		if err := json.Unmarshal(lines.Bytes(), &step); err != nil {
			panic(err)
		}
		answer := map[string]string{}
		if err := program.do(step); err != nil {
			answer["error"] = err.Error()
		}
		text, _ := json.Marshal(answer)
		fmt.Println(string(text))
	}
	program.client.CloseAllowingRebalance()
}
