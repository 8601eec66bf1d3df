/**
 * Makes `src/wire.ts` from the `/openapi.json` of a scheduler.
 *
 * Start at `wireTypes`. It writes what clients send and receive: the schemas that the routes of
 * clients and operators name, the messages of a session, and the events.
 *
 * Invariant: a keyword that it does not know is an error, so that nothing is left out unnoticed.
 */

import { execFileSync } from "node:child_process";

const COLUMNS_MAX = 100;
const SCHEMAS = "#/components/schemas/";

/** Keywords that make a type. */
const READ = new Set([
  ...["const", "$ref", "enum", "anyOf", "oneOf", "type", "properties", "items", "prefixItems"],
]);

/** Keywords without an effect on the types. */
const IGNORED = new Set([
  ...["default", "deprecated", "description", "examples", "format", "pattern", "title"],
  ...["maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "multipleOf"],
  ...["maxItems", "minItems", "uniqueItems", "maxLength", "minLength"],
  ...["maxProperties", "minProperties", "propertyNames", "required", "additionalProperties"],
]);

const HEADER = `/**
 * The messages and bodies of the scheduler's HTTP and session interfaces.
 *
 * Made from its \`/openapi.json\` by \`npm run types\`; a test compares. Do not edit.
 */
`;

/**
 * The text of `src/wire.ts`.
 *
 * @param {any} document
 * @returns {string}
 */
export function wireTypes(document) {
  const session = document.paths["/v1/session/ws"].get["x-messages"];
  const events = document.paths["/v1/events"].get["x-events"];
  const routes = routesOfClients(document);
  const named = [routes, session, events];
  const schemas = document.components.schemas;
  const names = [...reachable(named, schemas)].sort();
  const types = names.map((name) => type(typeName(name), schemas[name]));
  const groups = [
    group("SessionRequests", "Messages from a client to a session, by type.", session.client),
    group("SessionUpdates", "Messages from a session to its client, by type.", session.scheduler),
    record("ServerEvents", "Events of `GET /v1/events`, by name.", Object.entries(events)),
    record("Queries", "The parameters of routes in their addresses.", queries(routes)),
  ];
  return [HEADER, ...types, ...groups].join("\n");
}

/**
 * The source as the formatter writes it.
 *
 * @param {string} source
 */
export function formatted(source) {
  const args = ["format", "--stdin-file-path=src/wire.ts"];
  return execFileSync("node_modules/.bin/biome", args, { input: source, encoding: "utf8" });
}

/**
 * The operations that a client or operator calls: method, path and description of each.
 *
 * @param {any} document
 * @returns {{method: string, path: string, operation: any}[]}
 */
export function routesOfClients(document) {
  const all = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ method, path, operation })),
  );
  return all.filter(({ operation }) => !operation.tags.includes("node"));
}

/**
 * The names of the schemas that a value refers to, directly or not.
 *
 * @param {unknown} value
 * @param {any} schemas
 * @param {Set<string>} found
 */
function reachable(value, schemas, found = new Set()) {
  if (typeof value !== "object" || value === null) {
    return found;
  }
  for (const [key, inner] of Object.entries(value)) {
    if (key !== "$ref") {
      reachable(inner, schemas, found);
    } else if (!found.has(nameOf(inner))) {
      found.add(nameOf(inner));
      reachable(schemas[nameOf(inner)], schemas, found);
    }
  }
  return found;
}

/** @param {string} reference */
function nameOf(reference) {
  if (!reference.startsWith(SCHEMAS)) {
    throw new Error(`the reference ${reference} leads elsewhere`);
  }
  return reference.slice(SCHEMAS.length);
}

/**
 * The name in TypeScript: `session_start` is `SessionStart`. One word alone, such as `partial`,
 * might be a name of the language.
 *
 * @param {string} name
 */
function typeName(name) {
  if (/^[A-Z]/.test(name)) {
    return name;
  }
  const words = name.includes("_") ? name.split("_") : ["session", name];
  return words.map((word) => word.charAt(0).toUpperCase() + word.slice(1)).join("");
}

/**
 * A named type.
 *
 * @param {string} name
 * @param {any} schema
 */
function type(name, schema) {
  const head = comment(schema.description, "");
  const isRecord = schema.type === "object" && schema.properties && !schema.$ref;
  return isRecord
    ? `${head}export interface ${name} ${fields(schema, "")}\n`
    : `${head}export type ${name} = ${expression(schema, "")};\n`;
}

/**
 * An interface that maps the `type` of a message to its fields.
 *
 * @param {string} name
 * @param {string} description
 * @param {any[]} messages
 */
function group(name, description, messages) {
  const entries = messages.map(({ allOf: [schema, kind] }) => [kind.properties.type.const, schema]);
  return record(name, description, entries);
}

/**
 * The parameters behind the question mark of each route, as the schema of an object.
 *
 * @param {{method: string, path: string, operation: any}[]} routes
 */
function queries(routes) {
  /** @type {any[][]} */
  const described = [];
  for (const { method, path, operation } of routes) {
    /** @type {Record<string, any>} */
    const properties = {};
    for (const { name, in: place, description, schema } of operation.parameters) {
      if (place === "query") {
        properties[name] = { description, ...schema };
      }
    }
    if (Object.keys(properties).length > 0) {
      described.push([`${method.toUpperCase()} ${path}`, { type: "object", properties }]);
    }
  }
  return described;
}

/**
 * @param {string} name
 * @param {string} description
 * @param {any[][]} entries
 */
function record(name, description, entries) {
  const key = (/** @type {string} */ name) => (/^\w+$/.test(name) ? name : JSON.stringify(name));
  const lines = entries.map(([name, schema]) => `  ${key(name)}: ${expression(schema, "  ")};\n`);
  return `${comment(description, "")}export interface ${name} {\n${lines.join("")}}\n`;
}

/**
 * The fields of an object, in braces.
 *
 * @param {any} schema
 * @param {string} indent
 */
function fields(schema, indent) {
  const required = new Set(schema.required);
  const inner = `${indent}  `;
  const lines = Object.entries(schema.properties).map(([name, field]) => {
    const key = /^\w+$/.test(name) ? name : JSON.stringify(name);
    const mark = required.has(name) ? "" : "?";
    const text = `${inner}${key}${mark}: ${expression(field, inner)};\n`;
    return comment(field.description, inner) + text;
  });
  return `{\n${lines.join("")}${indent}}`;
}

/**
 * A schema as a type expression.
 *
 * @param {any} schema
 * @param {string} indent
 * @returns {string}
 */
function expression(schema, indent) {
  if (schema === true) {
    return "unknown";
  }
  const unknown = Object.keys(schema).find((key) => !IGNORED.has(key) && !READ.has(key));
  if (unknown) {
    throw new Error(`the keyword ${unknown} is not known`);
  }
  const all = (/** @type {any[]} */ schemas) => schemas.map((one) => expression(one, indent));
  const literals = (/** @type {unknown[]} */ values) => values.map((one) => JSON.stringify(one));
  if (schema.const !== undefined) {
    return union(literals([schema.const]));
  }
  if (schema.$ref !== undefined) {
    return typeName(nameOf(schema.$ref));
  }
  if (schema.enum !== undefined) {
    return union(literals(schema.enum));
  }
  if (schema.anyOf !== undefined || schema.oneOf !== undefined) {
    return union(all(schema.anyOf ?? schema.oneOf));
  }
  if (schema.type === undefined) {
    return "unknown";
  }
  return union([schema.type].flat().map((kind) => simple(kind, schema, indent)));
}

/**
 * A union. Texts beside `string` stay visible to editors if it is written as `string & {}`.
 *
 * @param {string[]} parts
 */
function union(parts) {
  const isOpen = parts.includes("string") && parts.some((part) => part.startsWith('"'));
  const written = parts.map((part) => (isOpen && part === "string" ? "(string & {})" : part));
  return [...new Set(written)].join(" | ");
}

/**
 * @param {string} kind
 * @param {any} schema
 * @param {string} indent
 */
function simple(kind, schema, indent) {
  switch (kind) {
    case "null":
    case "boolean":
    case "string":
      return kind;
    case "integer":
    case "number":
      return "number";
    case "array": {
      if (schema.prefixItems) {
        const parts = schema.prefixItems.map((/** @type {any} */ one) => expression(one, indent));
        return `[${parts.join(", ")}]`;
      }
      const item = expression(schema.items ?? true, indent);
      return /^\w+$/.test(item) ? `${item}[]` : `(${item})[]`;
    }
    case "object":
      if (schema.properties) {
        return fields(schema, indent);
      }
      return `Record<string, ${expression(schema.additionalProperties ?? true, indent)}>`;
    default:
      throw new Error(`the type ${kind} is not known`);
  }
}

/**
 * A comment of lines that end in time.
 *
 * @param {string | undefined} text
 * @param {string} indent
 */
function comment(text, indent) {
  if (!text) {
    return "";
  }
  const words = text.replaceAll("*/", "* /").split(/\s+/);
  const one = `${indent}/** ${words.join(" ")} */`;
  if (one.length <= COLUMNS_MAX) {
    return `${one}\n`;
  }
  const lines = [];
  let line = `${indent} *`;
  for (const word of words) {
    if (line.length + 1 + word.length > COLUMNS_MAX) {
      lines.push(line);
      line = `${indent} *`;
    }
    line += ` ${word}`;
  }
  return `${[`${indent}/**`, ...lines, line, `${indent} */`].join("\n")}\n`;
}
