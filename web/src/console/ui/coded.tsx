/** The API's words, whose code stands between backticks. */
export const Coded = ({ text }: { text: string }) =>
  text.split(/`([^`]+)`/).map((part, i) =>
    i % 2 === 1 ? (
      <code key={i} className="mono">
        {part}
      </code>
    ) : (
      part
    ),
  )
