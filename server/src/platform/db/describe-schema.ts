/**
 * Describes the schema of a database from its catalogue, as SQL. This code generates `schema.sql`. Two databases on one server have the same schema if their descriptions are equal. `pg_dump` is not used, because its text
 * changes with its version.
 */

/** Runs one statement and returns its rows. */
type Query = (text: string) => Promise<Record<string, unknown>[]>

/** The parts of a schema in the order of `schema.sql`: the SQL of each, by a name such as `table payments`. */
export type SchemaParts = ReadonlyMap<string, string>

/** A relation, a domain or a function; or a part that belongs to the relation `owner`. */
interface Part {
  owner: string
  kind: string
  text: string
  comment: string | null
}

/**
 * Returns the parts of the schema that is first in the search path. The result leaves out the table of migrations, and
 * the names of `not null` constraints, which only Postgres 18 has. Without `comments`, the result leaves out all
 * comments, including those in functions.
 */
export async function describeSchema(query: Query, { comments = true } = {}): Promise<SchemaParts> {
  const [current] = await query("select current_schema() as schema")
  const read = async (statement: string): Promise<Part[]> =>
    ((await query(statement)) as unknown as Part[]).map(part =>
      comments ? part : { ...part, text: part.text.replace(/^ *--.*\n/gm, ""), comment: null },
    )
  const parts = await read(PARTS)
  const belongings = Map.groupBy(await read(BELONGINGS), ({ owner }) => owner)
  const described = parts.map(({ owner, kind, text, comment }): [string, string] => {
    const own = Map.groupBy(belongings.get(owner) ?? [], each => each.kind)
    const listed = (kind: string) => own.get(kind) ?? []
    const statements = [...listed("index"), ...listed("trigger"), ...listed("rule")].map(
      each => `${commentLines(each.comment)}${lowered(each.text)};\n`,
    )
    const lines = [...listed("column"), ...listed("constraint")].map(
      each => `${commentLines(each.comment, "  ")}  ${lowered(each.text)}`,
    )
    const head = commentLines(comment)
    if (kind === "table")
      return [
        `table ${owner}`,
        `${head}create table ${owner} (\n${lines.join(",\n")}\n${text};\n${statements.join("")}`,
      ]
    // The view's columns with their types, as a comment, because the view's text does not show the types.
    if (kind === "view")
      return [
        `view ${owner}`,
        `${head}${lines.join("\n").replace(/^( *)(-- )?/gm, "-- $1")}\ncreate view ${owner} as\n${lowered(text)}\n`,
      ]
    return [
      `${kind} ${owner}`,
      `${head}${kind === "function" ? functionText(text, `${current?.schema}`) : lowered(text)};\n`,
    ]
  })
  return new Map(described)
}

/** The text of `schema.sql`. */
export const schemaFile = (parts: SchemaParts): string =>
  `-- The schema with all migrations, made by \`npm run schema\` from the catalogue: read it, and change it by a migration.\n\n${[...parts.values()].join("\n")}`

const commentLines = (comment: string | null, indent = ""): string =>
  comment ? `${comment.replace(/^/gm, `${indent}-- `)}\n` : ""

/** Postgres writes keywords in capitals. No name contains capitals. */
const lowered = (text: string): string =>
  text.replace(/'(?:[^']|'')*'|[^']+/g, part => (part.startsWith("'") ? part : part.toLowerCase()))

/** The text of a function contains the name of its schema, whatever the search path is. */
function functionText(text: string, schema: string): string {
  const at = text.search(/^\s*(AS \$|RETURN |BEGIN ATOMIC)/m)
  const head = lowered(text.slice(0, at).replace(`${schema}.`, "").replace(`'${schema}'`, "'public'"))
  return `${head}${text.slice(at).trimEnd()}`
}

const HERE = "current_schema()::regnamespace"

const PARTS = `
  select * from (
  select typname::text as owner, 'domain' as kind, 0 as place,
    'create domain ' || typname || ' as ' || format_type(typbasetype, typtypmod) || case when typnotnull then ' not null' else '' end
      || coalesce(' default ' || typdefault, '') || coalesce((select string_agg(
        ' constraint ' || conname || ' ' || pg_get_constraintdef(c.oid, true), '' order by conname collate "C")
        from pg_constraint c where contypid = t.oid and contype = 'c'), '') as text,
    obj_description(oid, 'pg_type') as comment
  from pg_type t where typtype = 'd' and typnamespace = ${HERE}
  union all
  select relname::text, 'table', 1, ')' || coalesce(' with (' || array_to_string(reloptions, ', ') || ')', ''), obj_description(oid, 'pg_class')
  from pg_class where relkind = 'r' and relnamespace = ${HERE} and relname <> 'migrations'
  union all
  select relname::text, 'view', 2, pg_get_viewdef(oid, true), obj_description(oid, 'pg_class')
  from pg_class where relkind = 'v' and relnamespace = ${HERE}
  union all
  select p.oid::regprocedure::text, 'function', 3, pg_get_functiondef(p.oid), obj_description(p.oid, 'pg_proc')
  from pg_proc p where pronamespace = ${HERE} and prokind in ('f', 'p')
    and not exists (select from pg_depend where objid = p.oid and classid = 'pg_proc'::regclass and deptype = 'e')
  union all
  -- The service makes none of these, so that each of them is a difference.
  select relname::text, 'relation', 4, 'kind ' || relkind::text, null
  from pg_class c where relkind in ('m', 'f', 'p', 'c', 'S') and relnamespace = ${HERE}
    and not exists (select from pg_depend where objid = c.oid and classid = 'pg_class'::regclass and deptype in ('i', 'a'))
  union all
  select typname::text, 'type', 5, 'kind ' || typtype::text, null from pg_type where typtype in ('e', 'r') and typnamespace = ${HERE}
  ) parts order by place, owner collate "C"`

const OF_SCHEMA = `c.relnamespace = ${HERE}`

const BELONGINGS = `
  select * from (
  select c.relname::text as owner, 'column' as kind, a.attnum as place,
    a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
      || case when a.attcollation <> t.typcollation then ' collate ' || a.attcollation::regcollation else '' end
      || case when a.attnotnull then ' not null' else '' end
      || case a.attidentity when 'a' then ' generated always as identity' when 'd' then ' generated by default as identity' else '' end
      || coalesce(case when a.attgenerated <> '' then ' generated always as (' || pg_get_expr(d.adbin, d.adrelid) || ') stored'
        else ' default ' || pg_get_expr(d.adbin, d.adrelid) end, '') as text,
    col_description(c.oid, a.attnum) as comment, '' as name
  from pg_attribute a join pg_class c on c.oid = a.attrelid join pg_type t on t.oid = a.atttypid
    left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
  where ${OF_SCHEMA} and c.relkind in ('r', 'v') and a.attnum > 0 and not a.attisdropped
  union all
  select c.relname::text, 'constraint', position(k.contype::text in 'pucfx'), 'constraint ' || conname || ' ' || pg_get_constraintdef(k.oid, true),
    obj_description(k.oid, 'pg_constraint'), conname::text
  from pg_constraint k join pg_class c on c.oid = k.conrelid where ${OF_SCHEMA} and k.contype in ('p', 'u', 'c', 'f', 'x')
  union all
  select c.relname::text, 'index', 0, pg_get_indexdef(i.indexrelid, 0, true) || case when i.indisvalid then '' else ' -- invalid' end,
    obj_description(i.indexrelid, 'pg_class'), i.indexrelid::regclass::text
  from pg_index i join pg_class c on c.oid = i.indrelid
  where ${OF_SCHEMA} and not exists (select from pg_constraint k where k.conindid = i.indexrelid and k.contype in ('p', 'u', 'x'))
  union all
  select c.relname::text, 'trigger', 0, pg_get_triggerdef(t.oid, true) || case t.tgenabled when 'O' then '' else ' -- enabled: ' || t.tgenabled::text end,
    obj_description(t.oid, 'pg_trigger'), tgname::text
  from pg_trigger t join pg_class c on c.oid = t.tgrelid where ${OF_SCHEMA} and not tgisinternal
  union all
  select c.relname::text, 'rule', 0, pg_get_ruledef(r.oid, true), obj_description(r.oid, 'pg_rewrite'), rulename::text
  from pg_rewrite r join pg_class c on c.oid = r.ev_class where ${OF_SCHEMA} and rulename <> '_RETURN'
  ) belongings order by owner collate "C", kind, place, name collate "C"`
