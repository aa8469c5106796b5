// What franz-go does with a Kafka, one story per run: `franz STORY BOOTSTRAP NAME`.
//
// NAME is the topic, the group and the transactional id of the run. A story ends with status 1 and a
// sentence at the first thing that is not as Apache Kafka has it; what another client is to look at is
// printed as JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const patience = 60 * time.Second

// A run of one story.
type run struct {
	ctx   context.Context
	seeds []string
	name  string
	admin *kadm.Client
}

var stories = map[string]func(*run) any{
	"produce":      produce,
	"administer":   administer,
	"group":        group,
	"cooperative":  cooperative,
	"server-side":  serverSide,
	"transactions": transactions,
	"copy":         copyInTransactions,
	"zombie":       zombie,
}

func main() {
	story := stories[os.Args[1]]
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r := &run{ctx: ctx, seeds: strings.Split(os.Args[2], ","), name: os.Args[3]}
	client := r.client()
	defer client.Close()
	r.admin = kadm.NewClient(client)
	must(json.NewEncoder(os.Stdout).Encode(story(r)))
}

// client joins the seeds with what the story wants of it.
func (r *run) client(options ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append(options, kgo.SeedBrokers(r.seeds...))...)
	must(err)
	return client
}

func (r *run) createTopic(partitions int32) {
	created, err := r.admin.CreateTopic(r.ctx, partitions, 3, nil, r.name)
	must(err)
	must(created.Err)
}

// write sends values to the partitions that it names, and waits for all of them.
func (r *run) write(client *kgo.Client, partition int32, values ...string) {
	records := make([]*kgo.Record, len(values))
	for i, value := range values {
		records[i] = &kgo.Record{Topic: r.name, Partition: partition, Value: []byte(value)}
	}
	must(client.ProduceSync(r.ctx, records...).FirstErr())
}

// read polls until so many records are there.
func (r *run) read(client *kgo.Client, count int) []*kgo.Record {
	var found []*kgo.Record
	for len(found) < count {
		fetches := client.PollFetches(r.ctx)
		must(fetches.Err())
		found = append(found, fetches.Records()...)
	}
	check(len(found) == count, "%d records where %d were written", len(found), count)
	return found
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func check(holds bool, format string, arguments ...any) {
	if !holds {
		panic(fmt.Sprintf(format, arguments...))
	}
}

// eventually asks until the answer is yes.
func (r *run) eventually(what string, condition func() bool) {
	for !condition() {
		check(r.ctx.Err() == nil, "waited in vain: %s", what)
		time.Sleep(20 * time.Millisecond)
	}
}
